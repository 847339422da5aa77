"""`ddpjob`: the command. Imports client, local, engine and api."""
