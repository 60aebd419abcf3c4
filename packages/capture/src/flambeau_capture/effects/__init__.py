"""Side effects of the interpreted program, kept until the compiled code replays them."""
