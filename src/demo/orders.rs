//! A third party's order server: standard MCP at `POST /mcp`, no key, orders in memory.
//!
//! It stands for the servers that a company does not run itself: it knows no employees and no
//! ownership, and its writes move money. What keeps callers apart is the gateway before it.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc};

use http::{HeaderMap, Request, Response};
use hyper::body::Incoming;
use parking_lot::Mutex;
use serde_json::{Number, Value, json};

use super::{
    http::{self as web, Running, StartError},
    journal::Journal,
    mcp_server,
    provider::{
        About, Failure, Provider, Toolbox,
        schema::{Effect, count, input, list, one_of, output, record, string, text},
        unknown_tool,
    },
};
use crate::{body::Body, error::Code, mcp::header};

/// Where it speaks MCP.
pub const MCP_PATH: &str = "/mcp";

static ABOUT: About = About {
    name: "orders",
    title: "Order server",
    instructions: "Orders can be looked at, noted upon, cancelled before they are shipped, and \
                   refunded in whole or in part once they are paid.",
    cache_scope: "public",
};

/// Starts the order server on the current runtime.
pub async fn start(listen: SocketAddr) -> Result<Running, StartError> {
    let server = Arc::new(OrderServer {
        toolbox: Toolbox::new(descriptors())?,
        journal: Arc::default(),
        orders: Mutex::new(seed()),
    });
    let journal = server.journal.clone();
    web::serve(listen, journal, move |request| {
        let server = server.clone();
        async move { server.answer(request).await }
    })
    .await
}

#[derive(Debug)]
struct OrderServer {
    toolbox: Toolbox,
    journal: Arc<Journal>,
    orders: Mutex<BTreeMap<String, Order>>,
}

#[derive(Debug)]
struct Order {
    status: Status,
    items: Vec<Item>,
    refunded: Cents,
    notes: Vec<String>,
}

#[derive(Debug)]
struct Item {
    sku: &'static str,
    name: &'static str,
    quantity: i64,
    price: Cents,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    Pending,
    Paid,
    Shipped,
    Cancelled,
}

/// Money, in hundredths of a euro; on the wire a number with two decimals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Cents(i64);

// === impl OrderServer ===

impl OrderServer {
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        if request.uri().path() == MCP_PATH {
            mcp_server::handle(self, request).await
        } else {
            web::refuse(&Failure::new(Code::NotFound, "there is nothing at this path"))
        }
    }

    fn run(&self, tool: &str, arguments: &Value) -> Result<Value, Failure> {
        let argument = |name: &str| arguments.get(name).and_then(Value::as_str);
        let mut orders = self.orders.lock();
        if tool == "list_orders" {
            let wanted = argument("status");
            let found = orders.iter();
            let found = found.filter(|(_, o)| wanted.is_none_or(|w| w == o.status.as_str()));
            let found: Vec<Value> = found.map(|(id, order)| order.summary(id)).collect();
            return Ok(json!({ "total": found.len(), "orders": found }));
        }
        let id = argument("orderId").unwrap_or_default();
        let order = orders
            .get_mut(id)
            .ok_or_else(|| Failure::new(Code::NotFound, "there is no order of this id"))?;
        match tool {
            "query_order" => {}
            "add_order_note" => order.note(argument("note").unwrap_or_default())?,
            "cancel_order" => order.cancel()?,
            "refund_order" => order.refund(arguments.get("amount"))?,
            _ => return Err(unknown_tool()),
        }
        Ok(order.detail(id))
    }
}

impl Provider for OrderServer {
    /// Nobody: the employee named in a header is noted in the journal, and means nothing.
    type Caller = Option<String>;

    fn about(&self) -> &About {
        &ABOUT
    }

    fn toolbox(&self) -> &Toolbox {
        &self.toolbox
    }

    fn journal(&self) -> &Journal {
        &self.journal
    }

    fn admit(&self, _: &HeaderMap) -> Result<(), Failure> {
        Ok(())
    }

    async fn caller(&self, headers: &HeaderMap) -> Result<Option<String>, Failure> {
        let named = headers.get(header::EMPLOYEE).and_then(|value| value.to_str().ok());
        Ok(named.map(super::journal::short))
    }

    fn employee(caller: &Option<String>) -> Option<&str> {
        caller.as_deref()
    }

    async fn call(
        &self,
        _: Option<String>,
        tool: &str,
        arguments: &Value,
    ) -> Result<Value, Failure> {
        self.run(tool, arguments)
    }
}

// === impl Order ===

impl Order {
    /// Notes are few: this is memory, and anybody may write.
    const MAX_NOTES: usize = 20;

    fn total(&self) -> Cents {
        Cents(self.items.iter().map(|item| item.quantity * item.price.0).sum())
    }

    fn note(&mut self, note: &str) -> Result<(), Failure> {
        if self.notes.len() >= Self::MAX_NOTES {
            return Err(Failure::new(
                Code::Conflict,
                "the order has 20 notes, which is all it takes",
            ));
        }
        self.notes.push(note.to_owned());
        Ok(())
    }

    fn cancel(&mut self) -> Result<(), Failure> {
        if self.status == Status::Shipped {
            return Err(Failure::new(Code::Conflict, "the order has been shipped"));
        }
        self.status = Status::Cancelled;
        Ok(())
    }

    /// Pays back an amount, or without one all that is left.
    fn refund(&mut self, amount: Option<&Value>) -> Result<(), Failure> {
        if self.status == Status::Pending {
            return Err(Failure::new(Code::Conflict, "the order has not been paid"));
        }
        let left = Cents(self.total().0 - self.refunded.0);
        let amount = match amount {
            None => left,
            Some(amount) => Cents::parse(amount).ok_or_else(|| {
                Failure::new(Code::InvalidArgs, "/amount: at most two decimals, and no exponent")
            })?,
        };
        if amount > left || amount.0 <= 0 {
            let message = format!("{} of the order can be refunded", left.text());
            return Err(Failure::new(Code::Conflict, message));
        }
        self.refunded.0 += amount.0;
        Ok(())
    }

    fn summary(&self, id: &str) -> Value {
        json!({
            "orderId": id,
            "status": self.status.as_str(),
            "total": self.total().to_json(),
            "currency": "EUR",
        })
    }

    fn detail(&self, id: &str) -> Value {
        let items = self.items.iter().map(|item| {
            json!({
                "sku": item.sku,
                "name": item.name,
                "quantity": item.quantity,
                "price": item.price.to_json(),
            })
        });
        json!({
            "orderId": id,
            "status": self.status.as_str(),
            "items": items.collect::<Vec<_>>(),
            "total": self.total().to_json(),
            "refunded": self.refunded.to_json(),
            "currency": "EUR",
            "notes": self.notes,
        })
    }
}

// === impl Status ===

impl Status {
    const NAMES: [&str; 4] = ["pending", "paid", "shipped", "cancelled"];

    fn as_str(self) -> &'static str {
        match self {
            Status::Pending => "pending",
            Status::Paid => "paid",
            Status::Shipped => "shipped",
            Status::Cancelled => "cancelled",
        }
    }
}

// === impl Cents ===

impl Cents {
    /// Reads the digits as they were written: a binary fraction would not hold them.
    fn parse(value: &Value) -> Option<Self> {
        let Value::Number(number) = value else { return None };
        let text = number.to_string();
        let (euros, cents) = text.split_once('.').unwrap_or((&text, "0"));
        let cents: i64 = match cents.len() {
            1 => cents.parse::<i64>().ok()? * 10,
            2 => cents.parse().ok()?,
            _ => return None,
        };
        let euros: i64 = euros.parse().ok()?;
        euros.checked_mul(100)?.checked_add(cents).map(Self)
    }

    fn text(self) -> String {
        format!("{}.{:02}", self.0 / 100, self.0 % 100)
    }

    /// `129.90`, not `129.9`: a number keeps the decimals it was written with.
    fn to_json(self) -> Value {
        self.text().parse::<Number>().map_or(Value::Null, Value::Number)
    }
}

fn descriptors() -> Vec<Value> {
    let status = json!({
        "type": "string", "enum": Status::NAMES, "description": "Only orders in this state.",
    });
    let mut tools = vec![
        tool(
            "query_order",
            "Query an order",
            "Tells the state of one order, what was bought, and what it costs.",
            input([order_id()], &["orderId"]),
            Effect::Reads,
        ),
        json!({
            "name": "list_orders",
            "title": "List orders",
            "description": "Lists all orders, or those in one state.",
            "inputSchema": input([("status", status)], &[]),
            "outputSchema": output([("total", count()), ("orders", list(record(summary())))]),
            "annotations": Effect::Reads.annotations(),
        }),
    ];
    tools.extend(writes());
    tools
}

fn writes() -> [Value; 3] {
    let note = text(500, "What to write down.");
    let amount = json!({
        "type": "number", "exclusiveMinimum": 0,
        "description": "How much to pay back, with at most two decimals; all that is left if absent.",
    });
    [
        tool(
            "add_order_note",
            "Add a note to an order",
            "Writes a note for the people who handle the order.",
            input([order_id(), ("note", note)], &["orderId", "note"]),
            Effect::Adds,
        ),
        tool(
            "cancel_order",
            "Cancel an order",
            "Cancels an order that has not been shipped. This cannot be undone.",
            input([order_id()], &["orderId"]),
            Effect::EndsOnce,
        ),
        tool(
            "refund_order",
            "Refund an order",
            "Pays money back for an order. Each call pays again, until all is paid back.",
            input([order_id(), ("amount", amount)], &["orderId"]),
            Effect::Ends,
        ),
    ]
}

/// A tool that answers with the order as it is afterwards.
fn tool(name: &str, title: &str, description: &str, arguments: Value, effect: Effect) -> Value {
    json!({
        "name": name,
        "title": title,
        "description": description,
        "inputSchema": arguments,
        "outputSchema": detail(),
        "annotations": effect.annotations(),
    })
}

fn order_id() -> (&'static str, Value) {
    ("orderId", text(64, "The id of an order, such as O-1001."))
}

fn summary() -> [(&'static str, Value); 4] {
    [
        ("orderId", string()),
        ("status", one_of(&Status::NAMES)),
        ("total", json!({ "type": "number" })),
        ("currency", string()),
    ]
}

fn detail() -> Value {
    let number = || json!({ "type": "number" });
    let item =
        record([("sku", string()), ("name", string()), ("quantity", count()), ("price", number())]);
    let [order_id, status, total, currency] = summary();
    output([
        order_id,
        status,
        ("items", list(item)),
        total,
        ("refunded", number()),
        currency,
        ("notes", list(string())),
    ])
}

fn seed() -> BTreeMap<String, Order> {
    let mug = |quantity| Item { sku: "MUG-01", name: "Mug", quantity, price: Cents(1_295) };
    let lamp = |quantity| Item { sku: "LMP-07", name: "Desk lamp", quantity, price: Cents(10_400) };
    let order = |id: &str, status, items| {
        (id.to_owned(), Order { status, items, refunded: Cents(0), notes: Vec::new() })
    };
    BTreeMap::from([
        order("O-1001", Status::Shipped, vec![mug(2), lamp(1)]),
        order("O-1002", Status::Paid, vec![lamp(2)]),
        order("O-1003", Status::Pending, vec![mug(6)]),
        order("O-1004", Status::Cancelled, vec![mug(1)]),
    ])
}

#[cfg(test)]
mod tests;
