//! How the messages of `proto/table.proto`, and those that are stored, are declared: a field is
//! `name: type = (what the protocol calls it, tag)`.

macro_rules! messages {
    ($($(#[$meta:meta])* $name:ident { $($(#[$of:meta])* $field:ident: $type:ty = $how:tt,)* })*) => {$(
        $(#[$meta])*
        #[derive(Clone, PartialEq, ::prost::Message)]
        pub struct $name {$(
            $(#[$of])*
            #[prost $how]
            pub $field: $type,
        )*}
    )*};
}

/// Of what a message has one at a time, in a module with the message's name.
macro_rules! choices {
    ($($module:ident::$name:ident { $($(#[$of:meta])* $variant:ident($type:ty) = $how:tt,)* })*) => {$(
        pub mod $module {
            #[allow(unused_imports)]
            use super::*;

            #[derive(Clone, PartialEq, ::prost::Oneof)]
            pub enum $name {$(
                $(#[$of])*
                #[prost $how]
                $variant($type),
            )*}
        }
    )*};
}

macro_rules! enumerations {
    ($($(#[$meta:meta])* $name:ident { $($(#[$of:meta])* $variant:ident = $number:literal,)* })*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ::prost::Enumeration)]
        #[repr(i32)]
        pub enum $name {$(
            $(#[$of])*
            $variant = $number,
        )*}
    )*};
}
