"""The program: read the stack's configuration, deploy it on its platform, export what commands need."""

from components.config import accept_edits, load, load_scripts
from components.deploy import begin, deploy, export

accepted, step = accept_edits(load())
config = begin(accepted, step)
export(config, deploy(config, load_scripts(config)), step)
