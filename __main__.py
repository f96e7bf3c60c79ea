"""The program: read the stack's configuration, deploy it on its platform, export what commands need."""

from components.config import load, load_scripts
from components.deploy import deploy, export
from components.edits import refuse_impossible

config = load()
refuse_impossible(config)
export(config, deploy(config, load_scripts(config)))
