//! Enums of which each variant has a name, or a text.

/// Declares an enum of which each variant has a name: `Get = "get"`. `ALL` has the variants in their order, `name`
/// gives the name, and `from_name` finds the variant.
#[macro_export]
macro_rules! words {
    ($(#[$meta:meta])* $vis:vis enum $enum:ident { $(
        $(#[$variant_meta:meta])* $variant:ident = $name:literal,
    )* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        $vis enum $enum { $($(#[$variant_meta])* $variant,)* }

        #[allow(dead_code)] // few use all of it
        impl $enum {
            $vis const ALL: [$enum; [$($name),*].len()] = [$($enum::$variant),*];

            $vis fn name(self) -> &'static str {
                match self {
                    $($enum::$variant => $name,)*
                }
            }

            $vis fn from_name(name: &str) -> Option<$enum> {
                $enum::ALL.into_iter().find(|one| one.name() == name)
            }
        }
    };
}

/// Declares an enum of which each variant has a text, which says what the variant holds: `Short(bytes: usize) = "has
/// {bytes} bytes";`. [`Display`](std::fmt::Display) gives it. What is not in the text follows it, as in `format!`.
#[macro_export]
macro_rules! texts {
    ($(#[$meta:meta])* $vis:vis enum $enum:ident { $(
        $(#[$variant_meta:meta])*
        $variant:ident
        $(($($inner:ident: $inner_type:ty),*))?
        $({ $($field:ident: $type:ty),* })?
        = $text:literal $(, $argument:expr)*;
    )* }) => {
        $(#[$meta])*
        $vis enum $enum { $(
            $(#[$variant_meta])*
            $variant $(($($inner_type),*))? $({ $($field: $type),* })?,
        )* }

        impl ::std::fmt::Display for $enum {
            #[allow(unused_variables)]
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                match self {
                    $($enum::$variant $(($($inner),*))? $({ $($field),* })? => {
                        write!(f, $text $(, $argument)*)
                    })*
                }
            }
        }
    };
}

#[cfg(test)]
mod tests {
    words! {
        #[derive(PartialOrd)]
        enum Size {
            Small = "small",
            Large = "very large",
        }
    }

    #[test]
    fn a_variant_has_its_name_and_is_found_by_it() {
        assert_eq!(Size::ALL.map(Size::name), ["small", "very large"]);
        assert_eq!(Size::from_name("very large"), Some(Size::Large));
        assert_eq!(Size::from_name("large"), None);
        assert!(Size::Small < Size::Large);
    }

    texts! {
        enum Fault {
            Empty = "it is empty";
            Short(bytes: usize, least: usize) = "{bytes} bytes, not {least}";
            Wrong { name: String, number: u8 } = "{}: {number:?}", name.len();
        }
    }

    #[test]
    fn a_variant_says_its_text_with_what_it_holds() {
        let name = "four".to_string();
        let faults = [
            Fault::Empty,
            Fault::Short(1, 2),
            Fault::Wrong { name, number: 7 },
        ];
        let said = faults.map(|fault| fault.to_string());
        assert_eq!(said, ["it is empty", "1 bytes, not 2", "4: 7"]);
    }
}
