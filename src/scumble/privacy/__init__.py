"""What every private release is made of: exact amounts, budgets, their composition, and the noise."""
