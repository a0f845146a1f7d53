"""Call pipeline of all attention layers: validate, mask, score, normalize, pool."""
