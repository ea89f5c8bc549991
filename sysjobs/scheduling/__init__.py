"""Who waits, what jobs hold of the node, and who starts next: pure, told the time by others."""
