"""Runs programs in a held gang: the conversation with the command that sends them, by an exec into rank 0's pod."""
