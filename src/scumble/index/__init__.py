"""The index, stage by stage: histogram, curve, segments, lookup, file."""
