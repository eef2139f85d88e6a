//! How the target behaves towards a mail server: the contract, what is in a mail, what replies mean, and when a
//! connection is used again.

use redrive_core::event::idempotency::webhook_id;
use redrive_core::policy::answer::{BrokerError, MalformedEvent, TransportError};

use super::mailbox::{HANGS, Mailbox};
use super::*;
use crate::target::call_test::{call, delivery};
use crate::target::contract::keeps;
use crate::target::contract_test::made;

const TEMPLATES: &str = r#"from: shop@a.test, to: ["{{ data.email }}", "{{ data.other | default('') }}"], cc: "{{ data.cc | default('') }}", reply_to: "{{ data.answer | default('') }}", subject: "{{ data.subject }}", body: "{{ data.body }}""#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn smtp_keeps_the_contract() {
    keeps(&Mailbox::start().await).await;
}

fn target(mailbox: &Mailbox, more: &str) -> Arc<dyn Target> {
    made(&format!("{{ smtp: \"smtp://{}\", {more} }}", mailbox.address))
}

async fn sent(target: &dyn Target, seq: u64, data: &str) -> TargetReply {
    let headers = [
        ("ce-specversion", "1.0"),
        ("ce-id", "e-1"),
        ("ce-source", "web"),
        ("ce-type", "orders.placed"),
        ("content-type", "application/json"),
    ];
    match target.call(call("5s", vec![delivery(seq, &headers, data)])).await {
        Ending::Reply(reply) => reply,
        other => panic!("{other:?}"),
    }
}

const ORDER: &str = r#"{"email":"ann@b.test","subject":"Order 7","body":"Thanks"}"#;

#[tokio::test]
async fn a_mail_has_what_the_templates_make() {
    let mailbox = Mailbox::start().await;
    let more = format!(r#"{TEMPLATES}, html: "<p>{{{{ data.body }}}}</p>""#);
    let data = r#"{"email":"ann@b.test","other":"bob@b.test","cc":"ann@b.test","answer":"desk@a.test","subject":"Größe\r\nBcc: eve@b.test","body":"<b>Thanks</b>\n.\nto you"}"#;
    let reply = sent(&*target(&mailbox, &more), 1, data).await;
    assert_eq!((&reply.seen, &*reply.message), (&ReplyKind::Taken, "250 queued as q-1"));
    assert_eq!(mailbox.heard("MAIL"), ["MAIL FROM:<shop@a.test>"]);
    assert_eq!(mailbox.heard("RCPT"), ["RCPT TO:<ann@b.test>", "RCPT TO:<bob@b.test>"]);
    insta::assert_snapshot!(mailbox.mails()[0].replace("\r\n", "\n"), @r#"
    From: shop@a.test
    To: ann@b.test,
     bob@b.test
    Cc: ann@b.test
    Reply-To: desk@a.test
    Subject: =?UTF-8?B?R3LDtsOfZSBCY2M6IGV2ZUBiLnRlc3Q=?=
    Date: Tue, 21 Oct 2025 14:30:00 +0000
    Message-ID: <msg_a83e52fe9d9eec7970271acd7ba3f844@a.test>
    Auto-Submitted: auto-generated
    MIME-Version: 1.0
    Content-Type: multipart/alternative; boundary="=_msg_a83e52fe9d9eec7970271acd7ba3f844"

    --=_msg_a83e52fe9d9eec7970271acd7ba3f844
    Content-Type: text/plain; charset=utf-8
    Content-Transfer-Encoding: 7bit

    <b>Thanks</b>
    ..
    to you
    --=_msg_a83e52fe9d9eec7970271acd7ba3f844
    Content-Type: text/html; charset=utf-8
    Content-Transfer-Encoding: 7bit

    <p>&lt;b&gt;Thanks&lt;/b&gt;
    ..
    to you</p>
    --=_msg_a83e52fe9d9eec7970271acd7ba3f844--
    .
    "#);
}

#[tokio::test]
async fn no_value_adds_a_header_or_a_recipient() {
    let mailbox = Mailbox::start().await;
    let target = target(&mailbox, TEMPLATES);
    #[rustfmt::skip]
    let cases = [
        ("a second recipient",     r#""email":"ann@b.test,eve@b.test""#,                   "`to`: `{{ data.email }}` makes no mail address"),
        ("a header in an address", r#""email":"ann@b.test\r\nBcc: eve@b.test""#,           "`to`: `{{ data.email }}` makes no mail address"),
        ("a command",              r#""email":"ann@b.test>\r\nRCPT TO:<eve@b.test""#,      "`to`: `{{ data.email }}` makes no mail address"),
        ("a name",                 r#""email":"Ann <ann@b.test>""#,                        "`to`: `{{ data.email }}` makes no mail address"),
        ("a list of addresses",    r#""email":["ann@b.test","eve@b.test"]"#,               "`to`: `{{ data.email }}` makes no mail address"),
        ("no recipient",           r#""email":"""#,                                        "`to` makes no mail address"),
        ("null",                   r#""email":null"#,                                      "`to`: `{{ data.email }}` makes no mail address"),
        ("nothing",                r#""mail":"ann@b.test""#,                               "`to`: `data.email` is missing in the event"),
        ("a bad copy",             r#""email":"ann@b.test","cc":"eve@b.test\n""#,          "`cc`: `{{ data.cc | default('') }}` makes no mail address"),
        ("a bad answer",           r#""email":"ann@b.test","answer":"x""#,                 "`reply_to`: `{{ data.answer | default('') }}` makes no mail address"),
    ];
    for (name, data, message) in cases {
        let reply = sent(&*target, 1, &format!(r#"{{{data},"subject":"s","body":"b"}}"#)).await;
        assert_eq!(reply.seen, ReplyKind::Malformed(MalformedEvent::ViolatesSchema), "{name}: {reply:?}");
        assert_eq!(reply.message, message, "{name}");
    }
    assert_eq!((mailbox.connections(), mailbox.mails().len()), (0, 0), "such an event is not sent at all");
    let hostile = r#"{"email":"ann@b.test","subject":"a\nBcc: eve@b.test\r\n\r\nbody","body":"x\r\n.\r\nMAIL FROM:<eve@b.test>"}"#;
    assert_eq!(sent(&*target, 2, hostile).await.seen, ReplyKind::Taken);
    let mail = mailbox.mails().remove(0);
    let (head, body) = mail.split_once("\r\n\r\n").expect("a head and a body");
    assert!(head.contains("\r\nSubject: a Bcc: eve@b.test body\r\n") && !head.contains("\r\nBcc"), "{head}");
    assert_eq!(body, "x\r\n..\r\nMAIL FROM:<eve@b.test>\r\n.\r\n");
    assert_eq!(mailbox.heard("MAIL").len(), 1);
}

#[tokio::test]
async fn replies_of_the_server_say_what_follows() {
    let broker = ReplyKind::Broker;
    #[rustfmt::skip]
    let cases = [
        ("it goes away",            ("CONNECT", "421 closing"),          broker(BrokerError::Unavailable)),
        ("it has no service",       ("CONNECT", "554 no service"),       broker(BrokerError::Refused)),
        ("a busy mailbox",          ("RCPT", "450 busy"),                broker(BrokerError::Unavailable)),
        ("an error of its own",     ("MAIL", "451 local error"),         broker(BrokerError::Unavailable)),
        ("too many recipients",     ("RCPT", "452 too many"),            broker(BrokerError::Unavailable)),
        ("a login for the moment",  ("MAIL", "454 not now"),             broker(BrokerError::Unavailable)),
        ("no such mailbox",         ("RCPT", "550 5.1.1 unknown"),       broker(BrokerError::Refused)),
        ("another server",          ("RCPT", "551 elsewhere"),           broker(BrokerError::Refused)),
        ("too large",               ("content", "552 too large"),        broker(BrokerError::MessageTooLarge)),
        ("no such name",            ("RCPT", "553 odd name"),            broker(BrokerError::Refused)),
        ("spam",                    ("content", "554 spam"),             broker(BrokerError::Refused)),
        ("a login first",           ("MAIL", "530 log in"),              broker(BrokerError::Unauthorized)),
        ("a weak login",            ("MAIL", "534 too weak"),            broker(BrokerError::Unauthorized)),
        ("a wrong login",           ("MAIL", "535 wrong"),               broker(BrokerError::Unauthorized)),
        ("an unknown command",      ("DATA", "502 what"),                broker(BrokerError::Refused)),
        ("the end in the middle",   ("RCPT", ""),                        ReplyKind::Transport(TransportError::ClosedEarly)),
        ("no mail server",          ("CONNECT", "HTTP/1.1 400 Bad"),     ReplyKind::Transport(TransportError::Protocol)),
    ];
    for (name, said, expected) in cases {
        let mailbox = Mailbox::start().await;
        mailbox.says(&[said]);
        let target = target(&mailbox, TEMPLATES);
        let reply = sent(&*target, 1, ORDER).await;
        assert_eq!(reply.seen, expected, "{name}: {reply:?}");
        assert!(
            said.1.is_empty() || reply.message.contains(&said.1[..3]) || name == "no mail server",
            "{name}: {reply:?}"
        );
        assert_eq!(mailbox.mails().len(), 0, "{name}");
        assert_eq!(sent(&*target, 2, ORDER).await.seen, ReplyKind::Taken, "{name}: and the next is sent");
    }
}

#[tokio::test]
async fn one_refused_recipient_keeps_the_mail_from_all() {
    let mailbox = Mailbox::start().await;
    mailbox.says(&[("RCPT TO:<bob", "550 unknown")]);
    let data = r#"{"email":"ann@b.test","other":"bob@b.test","subject":"s","body":"b"}"#;
    let target = target(&mailbox, TEMPLATES);
    let reply = sent(&*target, 1, data).await;
    assert_eq!(reply.seen, ReplyKind::Broker(BrokerError::Refused));
    assert!(reply.message.starts_with("recipient 2 of 2, and so no mail is sent: "), "{}", reply.message);
    assert_eq!((mailbox.mails().len(), mailbox.heard("DATA").len()), (0, 0));
    assert_eq!(sent(&*target, 2, ORDER).await.seen, ReplyKind::Taken);
    assert_eq!(mailbox.connections(), 1, "a refusal does not end the connection");
}

#[tokio::test]
async fn a_connection_is_used_again_and_its_end_costs_no_attempt() {
    let mailbox = Mailbox::start().await;
    let target = target(&mailbox, TEMPLATES);
    for seq in 1..=3 {
        assert_eq!(sent(&*target, seq, ORDER).await.seen, ReplyKind::Taken);
    }
    assert_eq!((mailbox.connections(), mailbox.mails().len()), (1, 3));
    #[rustfmt::skip]
    let ends: [(&str, &[(&str, &str)]); 4] = [
        ("it ends silently",           &[("RSET", "")]),
        ("it ends with a word",        &[("RSET", "421 idle for too long")]),
        ("it ends a step later",       &[("MAIL", "")]),
        ("it wants another login",     &[("MAIL", "530 log in")]),
    ];
    for (number, (name, replies)) in ends.into_iter().enumerate() {
        mailbox.says(replies);
        assert_eq!(sent(&*target, 10, ORDER).await.seen, ReplyKind::Taken, "{name}");
        assert_eq!(mailbox.connections(), number + 2, "{name}");
    }
    mailbox.restart().await;
    assert_eq!(sent(&*target, 20, ORDER).await.seen, ReplyKind::Taken, "the server was started again");
    assert_eq!((mailbox.connections(), mailbox.mails().len()), (6, 8));
}

#[tokio::test]
async fn a_kept_connection_that_hangs_is_replaced_within_the_limit() {
    let mailbox = Mailbox::start().await;
    let target = target(&mailbox, TEMPLATES);
    assert_eq!(sent(&*target, 1, ORDER).await.seen, ReplyKind::Taken);
    mailbox.says(&[("RSET", HANGS)]);
    assert_eq!(sent(&*target, 2, ORDER).await.seen, ReplyKind::Taken);
    assert_eq!((mailbox.connections(), mailbox.mails().len()), (2, 2));
}

#[tokio::test]
async fn the_message_id_stays_the_same() {
    let mailbox = Mailbox::start().await;
    let target = target(&mailbox, TEMPLATES);
    mailbox.says(&[("content", "451 later")]);
    for _ in 0..2 {
        sent(&*target, 1, ORDER).await;
    }
    sent(&*target, 2, ORDER).await;
    let ids: Vec<String> = mailbox
        .mails()
        .iter()
        .map(|mail| {
            mail.lines().find(|line| line.starts_with("Message-ID: ")).expect("it has one").to_owned()
        })
        .collect();
    let id = webhook_id(
        delivery(
            1,
            &[
                ("ce-specversion", "1.0"),
                ("ce-id", "e-1"),
                ("ce-source", "web"),
                ("ce-type", "orders.placed"),
            ],
            "",
        )
        .id,
    );
    assert_eq!(ids[0], format!("Message-ID: <{id}@a.test>"));
    assert_ne!(ids[0], ids[1]);
}
