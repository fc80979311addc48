"""The index, stage by stage: histogram, mechanism, curve, segments, slack, lookup, file."""
