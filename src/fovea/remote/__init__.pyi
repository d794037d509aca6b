from .asking import ExplainedPicture as ExplainedPicture
from .asking import Question as Question
from .calling import Client as Client
from .calling import client as client
from .neighbors import SearchAnswer as SearchAnswer
from .questions import QUESTIONS as QUESTIONS
