from .asking import ExplainedPicture as ExplainedPicture
from .asking import Question as Question
from .client import Client as Client
from .client import client as client
from .neighbors import SearchAnswer as SearchAnswer
from .questions import QUESTIONS as QUESTIONS
