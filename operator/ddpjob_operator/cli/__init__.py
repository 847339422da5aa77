"""The `ddpjob` command. Imports client, report, local, engine and api."""
