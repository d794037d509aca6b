VENV ?= .venv
BIN = $(VENV)/bin
READY = $(VENV)/.ready

.PHONY: demo test check bench clean

demo: $(READY)  ## explain a few photographs and write one page to open
	$(BIN)/fovea demo --out out/demo

test: $(READY)  ## everything that is checked: style, types, behaviour
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest

bench: $(READY)  ## what explaining costs, beside others
	$(BIN)/fovea bench explain --json out/bench-explain.json

$(READY): pyproject.toml constraints.txt
	@echo 'setting up $(VENV): a few minutes, about 6 GB (PyTorch is most of it)'
	python3 -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[offline,train,video,dev,bench]'
	touch $(READY)

clean:
	rm -rf $(VENV) out build *.egg-info .pytest_cache .mypy_cache .ruff_cache
