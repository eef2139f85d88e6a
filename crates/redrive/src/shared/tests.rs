//! Breakers that are shared: several books stand for several processes.

use super::*;

#[tokio::test]
async fn memory_keeps_the_contract() {
    contract::holds(&Memory::new()).await;
}
