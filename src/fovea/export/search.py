EVALUATIONS = 24


def searched(run):
    raise NotImplementedError
