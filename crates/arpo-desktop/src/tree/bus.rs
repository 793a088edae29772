//! Calls to applications over the accessibility bus. Every call has a deadline, and an application that missed one is
//! not called again: it hangs, and the others should not wait for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use zbus::export::serde::Serialize;
use zbus::wire::DynamicDeserialize;
use zbus::{Connection, DynamicType, OwnedObjectPath, OwnedVariant, connection};

/// Time limit of a call to a working application.
const CALL_LIMIT: Duration = Duration::from_secs(3);
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

const ACCESSIBLE: &str = "org.a11y.atspi.Accessible";
const ROOT: &str = "/org/a11y/atspi/accessible/root";
const NOTHING: &str = "/org/a11y/atspi/null";

/// A failure of the bus.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BusError {
    /// No session bus is known.
    #[error("there is no session bus: DBUS_SESSION_BUS_ADDRESS is not set and no file contains it")]
    Unknown,
    /// The bus is not usable.
    #[error("the accessibility bus: {0}")]
    Failed(String),
    /// An application hangs.
    #[error("an application does not respond")]
    Hangs,
}

impl From<zbus::Error> for BusError {
    fn from(error: zbus::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

/// The accessibility bus.
#[derive(Debug, Clone)]
pub struct Bus {
    connection: Connection,
}

/// An accessible object: its application's bus name, and its object path.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Accessible {
    owner: String,
    path: OwnedObjectPath,
}

impl Accessible {
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
    pub async fn applications(&self) -> Result<Vec<Accessible>, BusError> {
        let path = OwnedObjectPath::try_from(ROOT).map_err(|error| BusError::Failed(error.to_string()))?;
        let root = Accessible { owner: "org.a11y.atspi.Registry".into(), path };
        BusClient::new(self.clone()).children(&root).await
    }
}

/// Calls one application, until it hangs.
#[derive(Debug)]
pub struct BusClient {
    bus: Bus,
    hangs: AtomicBool,
}

impl BusClient {
    /// For an application that is assumed to work.
    pub fn new(bus: Bus) -> Self {
        Self { bus, hangs: AtomicBool::new(false) }
    }

    async fn call<R>(
        &self,
        object: &Accessible,
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
        let (owner, path) = (Some(object.owner.as_str()), object.path.as_str());
        let call = self.bus.connection.call_method(owner, path, Some(interface), method, body);
        let Ok(reply) = tokio::time::timeout(CALL_LIMIT, call).await else {
            self.hangs.store(true, Ordering::Relaxed);
            return Err(BusError::Hangs);
        };
        Ok(reply?.body().deserialize()?)
    }

    /// A property of one of an object's interfaces.
    async fn property<R>(&self, object: &Accessible, interface: &str, name: &str) -> Result<R, BusError>
    where
        R: TryFrom<OwnedVariant>,
    {
        let value: OwnedVariant =
            self.call(object, "org.freedesktop.DBus.Properties", "Get", &(interface, name)).await?;
        R::try_from(value).map_err(|_| BusError::Failed(format!("{interface}.{name} is of another type")))
    }

    /// Its name.
    pub async fn name(&self, object: &Accessible) -> Result<String, BusError> {
        self.property(object, ACCESSIBLE, "Name").await
    }

    /// The number of its role.
    pub async fn role(&self, object: &Accessible) -> Result<u32, BusError> {
        self.call(object, ACCESSIBLE, "GetRole", &()).await
    }

    /// The name of its role, as its application gives it.
    pub async fn role_name(&self, object: &Accessible) -> Result<String, BusError> {
        self.call(object, ACCESSIBLE, "GetRoleName", &()).await
    }

    /// Its states, as bits.
    pub async fn states(&self, object: &Accessible) -> Result<Vec<u32>, BusError> {
        self.call(object, ACCESSIBLE, "GetState", &()).await
    }

    /// What its toolkit adds, in the order of names.
    pub async fn attributes(&self, object: &Accessible) -> Result<Vec<(String, String)>, BusError> {
        let map: std::collections::BTreeMap<String, String> =
            self.call(object, ACCESSIBLE, "GetAttributes", &()).await?;
        Ok(map.into_iter().collect())
    }

    /// Its interfaces, by the last part of their names.
    pub async fn interfaces(&self, object: &Accessible) -> Result<Vec<String>, BusError> {
        let names: Vec<String> = self.call(object, ACCESSIBLE, "GetInterfaces", &()).await?;
        Ok(names.iter().filter_map(|name| name.strip_prefix("org.a11y.atspi.")).map(str::to_owned).collect())
    }

    /// Its number of children.
    pub async fn child_count(&self, object: &Accessible) -> Result<i32, BusError> {
        self.property(object, ACCESSIBLE, "ChildCount").await
    }

    /// Its children.
    pub async fn children(&self, object: &Accessible) -> Result<Vec<Accessible>, BusError> {
        let children: Vec<(String, OwnedObjectPath)> =
            self.call(object, ACCESSIBLE, "GetChildren", &()).await?;
        Ok(children.into_iter().filter_map(Accessible::new).collect())
    }

    /// One of its children.
    pub async fn child(&self, object: &Accessible, index: i32) -> Result<Option<Accessible>, BusError> {
        Ok(Accessible::new(self.call(object, ACCESSIBLE, "GetChildAtIndex", &(index)).await?))
    }

    /// Its index in its parent.
    pub async fn index(&self, object: &Accessible) -> Result<i32, BusError> {
        self.call(object, ACCESSIBLE, "GetIndexInParent", &()).await
    }

    /// Its left, top, width and height on the screen.
    pub async fn extents(&self, object: &Accessible) -> Result<(i32, i32, i32, i32), BusError> {
        const ON_SCREEN: u32 = 0;
        // the four are one structure, not four values
        let ((x, y, width, height),): ((i32, i32, i32, i32),) =
            self.call(object, "org.a11y.atspi.Component", "GetExtents", &(ON_SCREEN)).await?;
        Ok((x, y, width, height))
    }

    /// Its descendant at a point on the screen.
    pub async fn at(&self, object: &Accessible, x: i32, y: i32) -> Result<Option<Accessible>, BusError> {
        const ON_SCREEN: u32 = 0;
        let point = (x, y, ON_SCREEN);
        let found = self.call(object, "org.a11y.atspi.Component", "GetAccessibleAtPoint", &point);
        Ok(Accessible::new(found.await?))
    }

    /// Its text.
    pub async fn text(&self, object: &Accessible) -> Result<String, BusError> {
        let count: i32 = self.property(object, "org.a11y.atspi.Text", "CharacterCount").await?;
        self.call(object, "org.a11y.atspi.Text", "GetText", &(0, count)).await
    }

    /// One of its numeric properties.
    pub async fn number(&self, object: &Accessible, name: &str) -> Result<f64, BusError> {
        self.property(object, "org.a11y.atspi.Value", name).await
    }

    /// Its number of columns, as a table.
    pub async fn columns(&self, object: &Accessible) -> Result<i32, BusError> {
        self.property(object, "org.a11y.atspi.Table", "NColumns").await
    }

    /// Its number of actions.
    pub async fn action_count(&self, object: &Accessible) -> Result<i32, BusError> {
        self.property(object, "org.a11y.atspi.Action", "NActions").await
    }

    /// A text of an action, by method: `GetName`, `GetDescription` or `GetKeyBinding`.
    pub async fn action(&self, object: &Accessible, method: &str, index: i32) -> Result<String, BusError> {
        self.call(object, "org.a11y.atspi.Action", method, &(index)).await
    }
}
