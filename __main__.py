"""The program: read the stack's configuration, deploy it on its platform, export what commands need."""

from components.config import accept_edits, load, load_scripts
from components.deploy import export
from components.platforms import begin, deploy

accepted, step = accept_edits(load())
config = begin(accepted, step)
export(config, deploy(config, load_scripts(config)), step)
