"""Which tests run when: by what they were recorded to take, by whose turn it is, and by what a change touches."""
