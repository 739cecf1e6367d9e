//! Damage
