//! Tests of the keeper from outside: one program, which is linked once, with a module for each suite.

mod cleared;
mod clickhouse;
mod damaged;
mod forms;
mod fresh;
mod gateways;
mod golden;
mod lists;
mod lives;
mod logged;
mod operators;
mod quotas;
mod riding;
mod traced;
mod whole;
