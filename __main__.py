"""The program: read the stack's configuration, deploy it on its platform, export what commands need."""

from components.config import accept_edits, load, load_scripts
from components.deploy import deploy, export

config = accept_edits(load())
export(config, deploy(config, load_scripts(config)))
