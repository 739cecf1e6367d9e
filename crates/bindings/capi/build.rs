fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libfdb_c.so");
}
