"""Code that tests in several folders share.

It covers waiting, ports, clients, jobs, and programs forked from a warm process.
"""
