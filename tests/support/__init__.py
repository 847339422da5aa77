"""Code that tests in several folders share: waiting, ports, clients, jobs, and programs forked from a warm
process.
"""
