"""What is refused, and the sentence."""
