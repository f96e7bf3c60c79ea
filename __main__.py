"""The program: read the stack's configuration, deploy it on its platform, export what commands need."""

from components.config import load, load_scripts
from components.deploy import deploy, export
from components.edits import accept_edits

config = accept_edits(load())
export(config, deploy(config, load_scripts(config)))
