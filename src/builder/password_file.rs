//! A password that stands in a file.

use std::error::Error;
use std::path::PathBuf;

use crate::base::credentials::{Credentials, CredentialsProvider};

pub(super) struct PasswordFile(pub(super) PathBuf);

impl CredentialsProvider for PasswordFile {
    fn credentials(&self) -> Result<Credentials, Box<dyn Error + Send + Sync>> {
        let path = self.0.display();
        let text = std::fs::read_to_string(&self.0).map_err(|e| format!("the password file {path}: {e}"))?;
        // Editors and `echo` end the line.
        let line = text.strip_suffix('\n').unwrap_or(&text);
        let password = line.strip_suffix('\r').unwrap_or(line);
        if password.is_empty() {
            return Err(format!("the password file {path} is empty").into());
        }
        Ok(Credentials::password(password))
    }
}
