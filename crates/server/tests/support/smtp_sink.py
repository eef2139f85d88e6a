"""A mail server for tests: it takes mail on a port that the system chooses, and prints what it was sent.

The first line says the port. Every mail is a line of JSON. `--login USER:PASSWORD` wants people to log in,
`--busy N` says 451 to the first N mails, `--refuse ADDRESS` knows no such recipient, and `--cert FILE --key FILE`
speaks TLS from the first byte, or with `--starttls` when it is asked to, and requires it then.
"""

import argparse
import asyncio
import json
import logging
import ssl
import sys
import warnings
from email import message_from_bytes, policy

from aiosmtpd.smtp import SMTP, AuthResult


class Sink:
    def __init__(self, busy, refuse):
        self.busy = busy
        self.refuse = refuse

    async def handle_RCPT(self, server, session, envelope, address, options):
        if address == self.refuse:
            return "550 5.1.1 no such mailbox"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):
        if self.busy > 0:
            self.busy -= 1
            return "451 come back later"
        mail = message_from_bytes(envelope.content, policy=policy.default)
        text, html = mail.get_body(("plain",)), mail.get_body(("html",))
        told = {
            "peer": session.peer[1],
            "tls": session.ssl is not None,
            "from": envelope.mail_from,
            "to": envelope.rcpt_tos,
            "login": session.auth_data,
            "headers": {name.lower(): str(value) for name, value in mail.items()},
            "body": text.get_content(),
            "html": html and html.get_content(),
        }
        print(json.dumps(told), flush=True)
        return "250 taken"


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--login")
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("--refuse")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--starttls", action="store_true")
    parser.add_argument("--cert")
    parser.add_argument("--key")
    options = parser.parse_args()

    def authenticate(server, session, envelope, mechanism, data):
        given = f"{data.login.decode()}:{data.password.decode()}"
        return AuthResult(success=given == options.login, handled=False, auth_data=data.login.decode())

    context = None
    if options.cert:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(options.cert, options.key)
    sink = Sink(options.busy, options.refuse)
    # On loopback nobody listens in, so that logging in needs no TLS, whatever the library thinks of that.
    warnings.simplefilter("ignore")
    logging.getLogger("mail.log").setLevel(logging.CRITICAL)
    settings = {"auth_require_tls": False}
    if options.login:
        settings |= {"authenticator": authenticate, "auth_required": True}
    if options.starttls:
        settings |= {"tls_context": context, "require_starttls": True}
        context = None
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: SMTP(sink, **settings), "127.0.0.1", options.port, ssl=context)
    print(f"port {server.sockets[0].getsockname()[1]}", flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        sys.exit(0)
