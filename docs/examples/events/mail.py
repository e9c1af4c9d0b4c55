#!/usr/bin/env python3
"""Mails an event of stokerd, for run.on_event_command.

    run:
      on_event_command:
        - {events: ["daemon failed", "daemon exited"], command: [/usr/share/stoker/events/mail.py, me@example.org]}

The mail server is $SMTP_SERVER (HOST or HOST:PORT), by default that of this machine. The sendmail
program needs privileges that the systemd unit of stokerd does not have.
"""

import email.message
import json
import os
import smtplib
import socket
import sys


def main():
    event = json.loads(sys.stdin.readline())
    host = socket.gethostname()
    message = email.message.EmailMessage()
    message["From"] = f"stoker@{host}"
    message["To"] = ", ".join(sys.argv[1:])
    message["Subject"] = f"{event['event']}: {event['run_dir']} on {host}"
    message.set_content("".join(f"{name}: {value}\n" for name, value in event.items()))
    server, _, port = os.environ.get("SMTP_SERVER", "localhost").partition(":")
    with smtplib.SMTP(server, int(port or 25), timeout=20) as smtp:
        smtp.send_message(message)


if __name__ == "__main__":
    main()
