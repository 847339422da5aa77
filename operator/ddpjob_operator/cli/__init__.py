"""`ddpjob`: the command. Imports local and api."""
