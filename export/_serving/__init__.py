"""What servers read, written from a bundle."""
