"""The applications: the command line, the HTTP server, and the pipeline for Apache Beam.

Imports everything else; nothing else imports it.
"""
