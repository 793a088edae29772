//! What applications are asked over the accessibility bus. Every question has a deadline, and an application that
//! missed one is not asked again: it hangs, and the others should not wait for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use zbus::export::serde::Serialize;
use zbus::wire::DynamicDeserialize;
use zbus::{Connection, DynamicType, OwnedObjectPath, OwnedVariant, connection};

/// For an application that works to answer anything.
const QUESTION_LIMIT: Duration = Duration::from_secs(3);
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

const ACCESSIBLE: &str = "org.a11y.atspi.Accessible";
const ROOT: &str = "/org/a11y/atspi/accessible/root";
const NOTHING: &str = "/org/a11y/atspi/null";

/// Why the bus gave no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BusError {
    /// No session bus is known.
    #[error("there is no session bus: DBUS_SESSION_BUS_ADDRESS is not set and no file says it")]
    Unknown,
    /// It is there but not to be had.
    #[error("the accessibility bus: {0}")]
    Failed(String),
    /// An application hangs.
    #[error("an application does not answer")]
    Hangs,
}

impl From<zbus::Error> for BusError {
    fn from(error: zbus::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

/// The bus on which accessible things are found.
#[derive(Debug, Clone)]
pub struct Bus {
    connection: Connection,
}

/// A thing: its application's name on the bus, and its own there.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Thing {
    owner: String,
    path: OwnedObjectPath,
}

impl Thing {
    fn new((owner, path): (String, OwnedObjectPath)) -> Option<Self> {
        (path.as_str() != NOTHING && !owner.is_empty()).then_some(Self { owner, path })
    }
}

impl Bus {
    /// Through the session bus at an address, which knows where the other one is.
    pub async fn open(session: Option<String>) -> Result<Self, BusError> {
        let session = session.ok_or(BusError::Unknown)?;
        let opening = async {
            let session = connection::Builder::address(session.as_str()).build().await?;
            let message = session
                .call_method(Some("org.a11y.Bus"), "/org/a11y/bus", Some("org.a11y.Bus"), "GetAddress", &())
                .await?;
            let address: String = message.body().deserialize()?;
            let connection = connection::Builder::address(address.as_str()).build().await?;
            Ok(Self { connection })
        };
        let in_time = tokio::time::timeout(CONNECT_LIMIT, opening).await;
        in_time.unwrap_or_else(|_| Err(BusError::Failed("no connection in time".into())))
    }

    /// The applications.
    pub async fn applications(&self) -> Result<Vec<Thing>, BusError> {
        let path = OwnedObjectPath::try_from(ROOT).map_err(|error| BusError::Failed(error.to_string()))?;
        let root = Thing { owner: "org.a11y.atspi.Registry".into(), path };
        Asker::new(self.clone()).children(&root).await
    }
}

/// Asks one application, until it hangs.
#[derive(Debug)]
pub struct Asker {
    bus: Bus,
    hangs: AtomicBool,
}

impl Asker {
    /// Of an application that is believed to work.
    pub fn new(bus: Bus) -> Self {
        Self { bus, hangs: AtomicBool::new(false) }
    }

    async fn call<R>(
        &self,
        thing: &Thing,
        interface: &str,
        method: &str,
        body: &(impl Serialize + DynamicType),
    ) -> Result<R, BusError>
    where
        R: for<'d> DynamicDeserialize<'d>,
    {
        if self.hangs.load(Ordering::Relaxed) {
            return Err(BusError::Hangs);
        }
        let (owner, path) = (Some(thing.owner.as_str()), thing.path.as_str());
        let call = self.bus.connection.call_method(owner, path, Some(interface), method, body);
        let Ok(answer) = tokio::time::timeout(QUESTION_LIMIT, call).await else {
            self.hangs.store(true, Ordering::Relaxed);
            return Err(BusError::Hangs);
        };
        Ok(answer?.body().deserialize()?)
    }

    /// A property of one of a thing's interfaces.
    async fn property<R>(&self, thing: &Thing, interface: &str, name: &str) -> Result<R, BusError>
    where
        R: TryFrom<OwnedVariant>,
    {
        let value: OwnedVariant =
            self.call(thing, "org.freedesktop.DBus.Properties", "Get", &(interface, name)).await?;
        R::try_from(value).map_err(|_| BusError::Failed(format!("{interface}.{name} is of another type")))
    }

    /// What it is called.
    pub async fn name(&self, thing: &Thing) -> Result<String, BusError> {
        self.property(thing, ACCESSIBLE, "Name").await
    }

    /// The number of its role.
    pub async fn role(&self, thing: &Thing) -> Result<u32, BusError> {
        self.call(thing, ACCESSIBLE, "GetRole", &()).await
    }

    /// Its role in its application's words.
    pub async fn role_name(&self, thing: &Thing) -> Result<String, BusError> {
        self.call(thing, ACCESSIBLE, "GetRoleName", &()).await
    }

    /// Its states, as bits.
    pub async fn states(&self, thing: &Thing) -> Result<Vec<u32>, BusError> {
        self.call(thing, ACCESSIBLE, "GetState", &()).await
    }

    /// What its toolkit adds, in the order of names.
    pub async fn attributes(&self, thing: &Thing) -> Result<Vec<(String, String)>, BusError> {
        let map: std::collections::BTreeMap<String, String> =
            self.call(thing, ACCESSIBLE, "GetAttributes", &()).await?;
        Ok(map.into_iter().collect())
    }

    /// What else it can be asked, by the last part of the interfaces' names.
    pub async fn interfaces(&self, thing: &Thing) -> Result<Vec<String>, BusError> {
        let names: Vec<String> = self.call(thing, ACCESSIBLE, "GetInterfaces", &()).await?;
        Ok(names.iter().filter_map(|name| name.strip_prefix("org.a11y.atspi.")).map(str::to_owned).collect())
    }

    /// How many things are in it.
    pub async fn child_count(&self, thing: &Thing) -> Result<i32, BusError> {
        self.property(thing, ACCESSIBLE, "ChildCount").await
    }

    /// All things in it.
    pub async fn children(&self, thing: &Thing) -> Result<Vec<Thing>, BusError> {
        let children: Vec<(String, OwnedObjectPath)> =
            self.call(thing, ACCESSIBLE, "GetChildren", &()).await?;
        Ok(children.into_iter().filter_map(Thing::new).collect())
    }

    /// One of the things in it.
    pub async fn child(&self, thing: &Thing, index: i32) -> Result<Option<Thing>, BusError> {
        Ok(Thing::new(self.call(thing, ACCESSIBLE, "GetChildAtIndex", &(index)).await?))
    }

    /// Which of the things in its parent it is.
    pub async fn index(&self, thing: &Thing) -> Result<i32, BusError> {
        self.call(thing, ACCESSIBLE, "GetIndexInParent", &()).await
    }

    /// Its left, top, width and height on the screen.
    pub async fn extents(&self, thing: &Thing) -> Result<(i32, i32, i32, i32), BusError> {
        const ON_SCREEN: u32 = 0;
        // the four are one structure, not four values
        let ((x, y, width, height),): ((i32, i32, i32, i32),) =
            self.call(thing, "org.a11y.atspi.Component", "GetExtents", &(ON_SCREEN)).await?;
        Ok((x, y, width, height))
    }

    /// The thing in it at a place on the screen.
    pub async fn at(&self, thing: &Thing, x: i32, y: i32) -> Result<Option<Thing>, BusError> {
        const ON_SCREEN: u32 = 0;
        let place = (x, y, ON_SCREEN);
        let found = self.call(thing, "org.a11y.atspi.Component", "GetAccessibleAtPoint", &place);
        Ok(Thing::new(found.await?))
    }

    /// Its text.
    pub async fn text(&self, thing: &Thing) -> Result<String, BusError> {
        let count: i32 = self.property(thing, "org.a11y.atspi.Text", "CharacterCount").await?;
        self.call(thing, "org.a11y.atspi.Text", "GetText", &(0, count)).await
    }

    /// One of the numbers it has.
    pub async fn number(&self, thing: &Thing, name: &str) -> Result<f64, BusError> {
        self.property(thing, "org.a11y.atspi.Value", name).await
    }

    /// How many columns it has, as a table.
    pub async fn columns(&self, thing: &Thing) -> Result<i32, BusError> {
        self.property(thing, "org.a11y.atspi.Table", "NColumns").await
    }

    /// How many things can be done with it.
    pub async fn action_count(&self, thing: &Thing) -> Result<i32, BusError> {
        self.property(thing, "org.a11y.atspi.Action", "NActions").await
    }

    /// What of one of them: `GetName`, `GetDescription` or `GetKeyBinding`.
    pub async fn action(&self, thing: &Thing, question: &str, index: i32) -> Result<String, BusError> {
        self.call(thing, "org.a11y.atspi.Action", question, &(index)).await
    }
}
