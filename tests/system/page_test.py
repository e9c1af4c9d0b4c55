#!/usr/bin/env python3
"""page_test.py STOKERD_BIN REPORT…: shows the page of a run in a headless Chromium.

The run's directory is written here; stokerctl and stoker-web read it. Skipped (exit code 77) without
Chromium. With --pictures DIR it also writes screenshots.
"""
