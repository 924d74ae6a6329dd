"""SGLang: our drafts behind `--speculative-algorithm NGRAM`, when asked for by NGRAMSPEC=1 or NGRAMSPEC_CONFIG."""
