"""What the counts say: estimates with their errors and intervals."""
