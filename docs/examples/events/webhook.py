#!/usr/bin/env python3
"""Posts an event of stokerd to a chat, for run.on_event_command.

    run:
      on_event_command:
        - events: ["daemon *", "training stalled"]
          command: [/usr/share/stoker/events/webhook.py, /etc/stoker/webhook-url]

The argument is a file with the URL of an incoming webhook, which is a secret: Slack, Mattermost,
Rocket.Chat and Google Chat accept {"text": ...}.
"""

import json
import sys
import urllib.request


def main():
    event = json.loads(sys.stdin.readline())
    with open(sys.argv[1], encoding="utf-8") as file:
        url = file.read().strip()
    hidden = ("event", "level", "time", "run_dir")
    details = " ".join(f"{name}={value}" for name, value in event.items() if name not in hidden)
    text = f"{event['run_dir']}: {event['event']} {details}".rstrip()
    request = urllib.request.Request(
        url, json.dumps({"text": text}).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=20):
        pass


if __name__ == "__main__":
    main()
