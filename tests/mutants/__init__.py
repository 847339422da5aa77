"""How sharp the tests are: small faults put into the programs one at a time, and whether a test notices."""
