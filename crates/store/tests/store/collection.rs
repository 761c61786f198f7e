//! Collection.
