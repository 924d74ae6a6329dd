"""What a step costs by the length of the context: `python -m benchmarks.contexts [--quick] --json FILE`.

As `benchmarks.cost`, one request at a time, whose prompt has 1,024 to 131,072 tokens. Taking the prompt in is told
apart from the steps.
"""

from __future__ import annotations

from benchmarks import workloads
from benchmarks.cost import measure, options, start, warm
from benchmarks.expected import Expectations

CONTEXTS, QUICK = (1_024, 8_192, 32_768, 131_072), (1_024, 8_192)
REQUESTS = 4


def main() -> None:
    """Command line."""
    asked = options(__doc__).parse_args()
    names, results = start(asked)
    expected = Expectations()
    served = [workloads.context(n, REQUESTS) for n in (QUICK if asked.quick else CONTEXTS)]
    warm(names, served[0])
    results["contexts"] = measure(served, names, results["repeats"], expected)
    expected.write(results, asked.json, asked.record)
    expected.close(asked.record)


if __name__ == "__main__":
    main()
