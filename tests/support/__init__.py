"""What tests of several folders share: waiting, ports, and how the stages of `make test` go."""
