VENV ?= .venv
BIN = $(VENV)/bin
READY = $(VENV)/.ready

LOWEST = $(VENV)-lowest
ABOVE = torch torchvision
TWO = -n 2 --dist loadfile  # two processes of tests, each with one thread: a file's tests share what they start

.PHONY: demo test lowest site bench clean

demo: $(READY)  ## explain a few photographs and write one page to open
	$(BIN)/fovea demo --out out/demo

test: $(READY)  ## everything that is checked: style, types, behaviour
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	OMP_NUM_THREADS=1 $(BIN)/pytest $(TWO)

lowest: $(LOWEST)/.ready  ## the tests of security with the lowest versions that are permitted; ABOVE= for torch as well
	FOVEA_OLD_TIMM=$(abspath $(LOWEST))/old PYTHONPATH=$(abspath src) OMP_NUM_THREADS=1 $(LOWEST)/bin/python -m pytest -m security -p no:cacheprovider $(TWO)

site: $(READY)  ## the docs as a site to read and search in a folder: out/site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench: $(READY)  ## what explaining costs, beside others
	$(BIN)/fovea bench explain --json out/bench-explain.json

$(READY): pyproject.toml constraints.txt
	@echo 'setting up $(VENV): a few minutes, about 6 GB (PyTorch is most of it)'
	python3 -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[offline,train,video,big,serve,cluster,export,dev,bench]'
	touch $(READY)

$(LOWEST)/.ready: $(READY) .ci/lowest.py
	@echo 'setting up $(LOWEST): what is not at its lowest ($(ABOVE) and the tools) is that of $(VENV)'
	python3 -m venv $(LOWEST)
	$(BIN)/python -c 'import site; print(site.getsitepackages()[0])' > "$$($(LOWEST)/bin/python -c 'import site; print(site.getsitepackages()[0])')/above.pth"
	$(BIN)/python .ci/lowest.py $(ABOVE) > $(LOWEST)/lowest.txt
	$(LOWEST)/bin/pip install --quiet --disable-pip-version-check -r $(LOWEST)/lowest.txt
	$(LOWEST)/bin/pip install --quiet --disable-pip-version-check --no-deps transformers==4.3.3  # nothing looks for one as old; newer ones ask for more
	for version in 1.0.15 1.0.25; do $(BIN)/pip install --quiet --disable-pip-version-check --no-deps --target $(LOWEST)/old/$$version timm==$$version || exit 1; done
	touch $(LOWEST)/.ready

clean:
	rm -rf $(VENV) $(LOWEST) out build *.egg-info .pytest_cache .mypy_cache .ruff_cache
