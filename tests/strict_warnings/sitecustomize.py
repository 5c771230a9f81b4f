"""Make RuntimeWarnings in dsel errors in every process of the tests: workers, and commands."""

import warnings

warnings.filterwarnings("error", category=RuntimeWarning, module=r"dsel\b")
